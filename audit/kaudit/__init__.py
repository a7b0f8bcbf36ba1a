"""kaudit knows cells, observations and tables. It never imports torch and never touches a GPU."""

__version__ = "0.1.0"
