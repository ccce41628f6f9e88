import { expect, test } from "vitest";
import schema from "../schema/runs.json";
import { COMMANDS } from "../src/lab/commandids";

test("the shortcuts in the settings are for existing commands", () => {
  const ids: string[] = Object.values(COMMANDS);
  for (const { command } of schema["jupyter.lab.shortcuts"]) expect(ids).toContain(command);
});
