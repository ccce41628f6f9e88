// The builder of JupyterLab's extensions does not compile TypeScript by default.
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
