# Wire: PMIx client and server, the channel between keepers, fingerprints.
noinst_LTLIBRARIES += libls_wire.la
libls_wire_la_SOURCES = src/wire/wire.h src/wire/internal.h src/wire/poll.c src/wire/map.c \
	src/wire/fingerprint.c src/wire/env.h src/wire/env.c src/wire/control.c src/wire/tree.h \
	src/wire/tree.c src/wire/connect.h src/wire/connect.c src/wire/address.h src/wire/address.c \
	src/wire/link.h src/wire/link.c src/wire/rendezvous.c
if LS_PMIX
libls_wire_la_SOURCES += src/wire/client.c src/wire/roll.h src/wire/roll.c src/wire/server.c src/wire/server_map.h \
	src/wire/server_map.c src/wire/folder.h src/wire/folder.c src/wire/pmix_util.h \
	src/wire/pmix_util.c
libls_wire_la_CFLAGS = $(AM_CFLAGS) $(PMIX_CFLAGS)
libls_wire_la_LIBADD = $(PMIX_LIBS)
else
libls_wire_la_SOURCES += src/wire/none.c
endif
EXTRA_DIST += src/wire/README.md
