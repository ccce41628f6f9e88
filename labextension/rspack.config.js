// What the builder of JupyterLab's extensions does not know by itself: our sources are TypeScript.
module.exports = {
  resolve: { extensions: [".ts", ".js"] },
  module: {
    rules: [
      {
        test: /\.ts$/,
        loader: "builtin:swc-loader",
        options: { jsc: { parser: { syntax: "typescript" }, target: "es2021" } },
      },
    ],
  },
};
