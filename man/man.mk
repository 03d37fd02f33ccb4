# lockstep.cfg(5) is made from the schema; its rule is in src/job/job.mk.
dist_man_MANS += \
	man/lockstep.1 \
	man/lockstep-check.1 \
	man/lockstep-ckpt.1 \
	man/lockstep-config.1 \
	man/lockstep-hosts.1 \
	man/lockstep-init.1 \
	man/lockstep-plan.1 \
	man/lockstep-run.1
