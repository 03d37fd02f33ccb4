check_PROGRAMS += tests/train/test_schedule
TESTS += tests/train/test_schedule
tests_train_test_schedule_SOURCES = tests/train/test_schedule.c
tests_train_test_schedule_LDADD = libls_train.la libls_watch.la libls_ckpt.la libls_data.la \
	libls_model.la libls_graph.la libls_device.la libls_job.la libls_base.la \
	$(LIBCONFIG_LIBS) $(JANSSON_LIBS) $(LIBDEFLATE_LIBS) $(XXHASH_LIBS) -lm -lpthread

check_PROGRAMS += tests/train/test_ranks
TESTS += tests/train/test_ranks
tests_train_test_ranks_SOURCES = tests/train/test_ranks.c tests/comm/harness.h tests/comm/harness.c
tests_train_test_ranks_CPPFLAGS = $(COMM_TEST_CPPFLAGS)
tests_train_test_ranks_LDADD = libls_train.la libls_graph.la libls_device.la $(COMM_LIBS) -ldl
