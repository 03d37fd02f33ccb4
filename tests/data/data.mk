data_tests = tests/data/test_idx tests/data/test_dataset tests/data/test_order \
	tests/data/test_feed tests/data/test_fashion
check_PROGRAMS += $(data_tests)
TESTS += $(data_tests)
data_ldadd = libls_data.la libls_base.la $(LIBDEFLATE_LIBS) -lm -lpthread

tests_data_test_idx_SOURCES = tests/data/test_idx.c tests/data/files.h
tests_data_test_idx_CFLAGS = $(AM_CFLAGS) $(LIBDEFLATE_CFLAGS)
tests_data_test_idx_LDADD = $(data_ldadd)
tests_data_test_dataset_SOURCES = tests/data/test_dataset.c tests/data/files.h
tests_data_test_dataset_CFLAGS = $(AM_CFLAGS) $(LIBDEFLATE_CFLAGS)
tests_data_test_dataset_LDADD = $(data_ldadd)
tests_data_test_order_SOURCES = tests/data/test_order.c
tests_data_test_order_LDADD = $(data_ldadd)
tests_data_test_feed_SOURCES = tests/data/test_feed.c
tests_data_test_feed_LDADD = $(data_ldadd)
tests_data_test_fashion_SOURCES = tests/data/test_fashion.c
tests_data_test_fashion_LDADD = $(data_ldadd)
