_current_platform = None


def __getattr__(name):
    if name == "current_platform":
        assert _current_platform is not None, "resolved before it was set"
        return _current_platform
    raise AttributeError(name)
