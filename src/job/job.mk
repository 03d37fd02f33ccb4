# The job description: schema, reader, printer, and the source of lockstep.cfg(5).
noinst_LTLIBRARIES += libls_job.la
libls_job_la_SOURCES = \
	src/job/job.h \
	src/job/parts.h \
	src/job/schema.h \
	src/job/check.c \
	src/job/layers.c \
	src/job/lex.c \
	src/job/man.c \
	src/job/print.c \
	src/job/problem.c \
	src/job/read.c \
	src/job/resolve.c \
	src/job/schema.c \
	src/job/source.c \
	src/job/value.c
libls_job_la_CFLAGS = $(AM_CFLAGS) $(LIBCONFIG_CFLAGS)
libls_job_la_LIBADD = $(LIBCONFIG_LIBS) -lm
EXTRA_DIST += src/job/README.md

# The page is made where it is built, so that it cannot lag behind the schema.
noinst_PROGRAMS += src/job/gen_man
src_job_gen_man_SOURCES = src/job/gen_man.c
src_job_gen_man_LDADD = libls_job.la libls_base.la $(LIBCONFIG_LIBS) -lm

man/lockstep.cfg.5: $(top_srcdir)/man/lockstep.cfg.5.in src/job/gen_man$(EXEEXT)
	$(AM_V_GEN)$(MKDIR_P) man && \
	src/job/gen_man$(EXEEXT) $(top_srcdir)/man/lockstep.cfg.5.in >$@.tmp && mv $@.tmp $@
nodist_man_MANS = man/lockstep.cfg.5
CLEANFILES += man/lockstep.cfg.5 man/lockstep.cfg.5.tmp
EXTRA_DIST += man/lockstep.cfg.5.in
