# Builds the packages, and so is asked for by LS_DEB_TESTS=yes.
TESTS += tests/debian/test_packages.py
dist_check_SCRIPTS += tests/debian/test_packages.py
