TESTS += tests/cli/test_run.py
dist_check_SCRIPTS += tests/cli/test_run.py
EXTRA_DIST += tests/tap.py
