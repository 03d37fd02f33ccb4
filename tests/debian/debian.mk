# Builds the packages, and so is asked for by LS_DEB_TESTS=yes. They are built without a sanitizer in any case.
plain_tests += tests/debian/test_packages.py
dist_check_SCRIPTS += tests/debian/test_packages.py
