"""A package, so that pytest ends its JupyterLab and its Chromium with the last of its tests."""
