"""What runs in MLServer's own environment, which has MLServer, TensorFlow and Keras, and not this package's needs."""
