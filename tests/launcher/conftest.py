def pytest_sessionfinish(session, exitstatus):
    """A file of which all tests are skipped is skipped, for meson as well."""
    stats = session.config.pluginmanager.get_plugin("terminalreporter").stats
    if exitstatus == 0 and stats.get("skipped") and not stats.get("passed"):
        session.exitstatus = 77
