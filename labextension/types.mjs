// Makes src/view/messages.ts from the schema of the messages, so that both ends agree by construction.
// `npm run types -- --check` fails where the file is not what the schema says.
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { compile } from "json-schema-to-typescript";

const here = dirname(fileURLToPath(import.meta.url));
const target = join(here, "src/view/messages.ts");
const python = process.env.PYTHON ?? "python3";
const schema = JSON.parse(
  execFileSync(python, ["-m", "ddl_magics.dashboard.schema"], { cwd: dirname(here), encoding: "utf-8" }),
);
const columns = schema.definitions.Column.enum;
const types = await compile(schema, "Message", {
  bannerComment:
    "// Generated from ddl_magics/dashboard/schema.py by `npm run types`: change that, not this.\n" +
    "// biome-ignore-all format: generated",
  unreachableDefinitions: true,
  style: { printWidth: 120 },
});
const text = `${types}
/** The columns of a row, in order. */
export const COLUMNS: readonly Column[] = ${JSON.stringify(columns)};
`;
if (process.argv.includes("--check")) {
  if (readFileSync(target, "utf-8") !== text) {
    console.error("labextension/src/view/messages.ts is not what the schema says: run `npm run types`");
    process.exit(1);
  }
} else {
  writeFileSync(target, text);
}
