# Communicators on host memory. LS_UCX is set by configure where UCX was found.
noinst_LTLIBRARIES += libls_comm.la libls_choose.la
libls_comm_la_SOURCES = src/comm/comm.h src/comm/internal.h src/comm/reduce.h src/comm/reduce_kernels.h \
	src/comm/collective.c src/comm/group.c src/comm/node.c src/comm/pair.c \
	src/comm/request.c src/comm/schedule.c src/comm/shm.c src/comm/socket.c src/comm/wait.c src/comm/wire.c \
	src/comm/world.c
if LS_UCX
libls_comm_la_SOURCES += src/comm/ucx.c
else
libls_comm_la_SOURCES += src/comm/no_ucx.c
endif
libls_comm_la_CFLAGS = $(AM_CFLAGS) $(UCX_CFLAGS)
libls_comm_la_LIBADD = libls_choose.la $(UCX_LIBS)
# What needs no network: the choice of an algorithm, for lockstep plan, and the arithmetic.
libls_choose_la_SOURCES = src/comm/activity.c src/comm/choose.c src/comm/reduce.c
EXTRA_DIST += src/comm/README.md
