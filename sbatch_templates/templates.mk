# Job descriptions with the results that were measured, and batch scripts beside some of them.
dist_templates_DATA += \
	sbatch_templates/array.cfg \
	sbatch_templates/array.sbatch \
	sbatch_templates/container-apptainer.sbatch \
	sbatch_templates/container-pyxis.sbatch \
	sbatch_templates/exec-pytorch.py \
	sbatch_templates/exec-pytorch.sbatch \
	sbatch_templates/fashion-mnist.cfg \
	sbatch_templates/fashion-mnist-mlp.cfg \
	sbatch_templates/interactive.cfg \
	sbatch_templates/interactive.sh \
	sbatch_templates/many-nodes.cfg \
	sbatch_templates/many-nodes.sbatch \
	sbatch_templates/one-node.cfg \
	sbatch_templates/one-node.sbatch
