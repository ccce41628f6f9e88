// Bundles the widgets of the live views, of a run and of a search, into ddl_magics/dashboard/static/: a script and a style
// sheet each.
import { mkdirSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

// The kernel sends the script with every widget, so its size is limited.
const MAX_SCRIPT_BYTES = 100_000;

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const outdir = join(root, "ddl_magics/dashboard/static");
const options = {
  entryPoints: {
    widget: join(root, "labextension/src/widget.ts"),
    search: join(root, "labextension/src/searchwidget.ts"),
  },
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
  for (const name of Object.keys(options.entryPoints)) {
    const { size } = statSync(join(outdir, `${name}.js`));
    if (size > MAX_SCRIPT_BYTES) {
      throw new Error(`${name}.js has ${size} bytes, more than ${MAX_SCRIPT_BYTES}`);
    }
    console.log(`ddl_magics/dashboard/static/${name}.js: ${size} bytes`);
  }
}
