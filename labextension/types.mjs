// Makes what is read from Python: src/view/messages.ts from the schema of the messages, src/rest.ts from the server's
// openapi.yaml, src/spec.ts from the spec of a run, so that both ends agree by construction.
// `npm run types -- --check` fails where a file is not what its schema says.
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { load } from "js-yaml";
import { compile } from "json-schema-to-typescript";

const here = dirname(fileURLToPath(import.meta.url));
const root = dirname(here);
const python = process.env.PYTHON ?? "python3";

/** What a Python prints as JSON. */
function asked(...words) {
  return JSON.parse(execFileSync(python, words, { cwd: root, encoding: "utf-8" }));
}

/** The first line of a file that is made here. */
function banner(source) {
  return `// Generated from ${source} by \`npm run types\`: change that, not this.\n`;
}

/** TypeScript of all definitions of a JSON Schema. */
function types(schema, name, source) {
  return compile(schema, name, {
    bannerComment: `${banner(source)}// biome-ignore-all format: generated`,
    unreachableDefinitions: true,
    style: { printWidth: 120 },
  });
}

async function messages() {
  const schema = asked("-m", "ddl_magics.dashboard.schema");
  return `${await types(schema, "Message", "ddl_magics/dashboard/schema.py")}
/** The columns of a row, in order. */
export const COLUMNS: readonly Column[] = ${JSON.stringify(schema.definitions.Column.enum)};
`;
}

/** OpenAPI 3.0 as JSON Schema: `nullable` is a type of its own there, and what is not named is not there. */
function plain(value) {
  if (Array.isArray(value)) return value.map(plain);
  if (value === null || typeof value !== "object") return value;
  const { nullable, ...rest } = value;
  const made = Object.fromEntries(Object.entries(rest).map(([key, part]) => [key, plain(part)]));
  // A tuple in TypeScript for so few of one kind would be a union of all their lengths.
  delete made.minItems;
  delete made.maxItems;
  if (made.$ref) made.$ref = made.$ref.replace("#/components/schemas/", "#/definitions/");
  if (made.type === "object" && made.properties) made.additionalProperties ??= false;
  if (!nullable) return made;
  if (made.enum) return { enum: [...new Set([...made.enum, null])] };
  const { description, ...kind } = made;
  return { anyOf: [kind, { type: "null" }], ...(description && { description }) };
}

function rest() {
  const source = "ddl_magics/server/openapi.yaml";
  const { components } = load(readFileSync(join(root, source), "utf-8"));
  const definitions = plain(components.schemas);
  const all = Object.keys(definitions).map((name) => ({ $ref: `#/definitions/${name}` }));
  return types({ definitions, anyOf: all }, "Answer", source);
}

function spec() {
  const names = asked("-c", "import json, ddl_magics.spec as spec; print(json.dumps(spec.NO_OPTIONS))");
  return `${banner("ddl_magics/spec.py")}
/** Fields of a run's spec that no option of its cell sets. */
export const NO_OPTIONS: readonly string[] = [${names.map((name) => `"${name}"`).join(", ")}];
`;
}

for (const [file, make] of [
  ["src/view/messages.ts", messages],
  ["src/rest.ts", rest],
  ["src/spec.ts", spec],
]) {
  const target = join(here, file);
  const made = await make();
  if (!process.argv.includes("--check")) {
    writeFileSync(target, made);
  } else if (readFileSync(target, "utf-8") !== made) {
    console.error(`labextension/${file} is not what its schema says: run \`npm run types\``);
    process.exit(1);
  }
}
