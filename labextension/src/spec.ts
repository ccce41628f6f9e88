// Generated from ddl_magics/spec.py by `npm run types`: change that, not this.

/** Fields of a run's spec that no option of its cell sets. */
export const NO_OPTIONS: readonly string[] = ["run", "cell", "checkpoints", "resume_uri"];
