"""kaudit knows cells, observations and tables. It never imports torch and never touches a GPU."""

from importlib.metadata import version

__version__ = version("kaudit")
