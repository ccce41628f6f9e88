// Bundles the widget of the live view into ddl_magics/dashboard/static/: one script, one style sheet.
import { mkdirSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

// The script travels with every widget that opens, so its size is part of the budget.
const MAX_SCRIPT_BYTES = 100_000;

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const outdir = join(root, "ddl_magics/dashboard/static");
const options = {
  entryPoints: { widget: join(root, "labextension/src/widget.ts") },
  outdir,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2021",
  logLevel: "warning",
};

mkdirSync(outdir, { recursive: true });
if (process.argv.includes("--watch")) {
  await (await esbuild.context({ ...options, logLevel: "info" })).watch();
} else {
  await esbuild.build(options);
  const { size } = statSync(join(outdir, "widget.js"));
  if (size > MAX_SCRIPT_BYTES) {
    throw new Error(`widget.js has ${size} bytes, more than ${MAX_SCRIPT_BYTES}`);
  }
  console.log(`ddl_magics/dashboard/static/widget.js: ${size} bytes`);
}
