"""torntail inside pytest: suites of clauses, scenario files as tests, options and summary."""
