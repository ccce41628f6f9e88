"""--strategy tf-allreduce and tf-ps: a cluster of TensorFlow's own, for cells written for tf.distribute."""
