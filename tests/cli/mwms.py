"""TensorFlow's MultiWorkerMirroredStrategy under exec: it finds its cluster in TF_CONFIG. One step of gradient
descent whose gradients differ between ranks, so that weights agree only if the ranks do."""

import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank = int(os.environ["RANK"])
with strategy.scope():
    weights = tf.Variable(tf.zeros([4]), aggregation=tf.VariableAggregation.MEAN)


@tf.function
def step(target):
    def replica(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((weights - x) ** 2)
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
    strategy.run(replica, args=(target,))


step(tf.fill([4], float(rank + 1)))
task = json.loads(os.environ["TF_CONFIG"])["task"]
print(f"rank {rank} of {strategy.num_replicas_in_sync}: {task['type']} {task['index']} "
      f"weight {float(weights.numpy()[0]):.3f}", flush=True)
