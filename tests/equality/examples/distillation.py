"""A trained teacher's softened outputs train a student, in a compute_loss.

Like: vision/knowledge_distillation
"""

random = np.random.default_rng(16)
x = random.normal(size=(74, 8))
labels = random.integers(0, 4, 74)
entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class Distiller(keras.Model):
    def __init__(self, student, teacher):
        super().__init__()
        self.student, self.teacher = student, teacher
        self.teacher.trainable = False

    def call(self, x):
        return self.student(x)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        taught = tf.nn.softmax(self.teacher(x, training=False) / 3.0)
        divergence = keras.losses.KLDivergence()(taught, tf.nn.softmax(y_pred / 3.0)) * 9.0
        return 0.1 * entropy(y, y_pred) + 0.9 * divergence


def network(units):
    return keras.Sequential([keras.Input((8,)), layers.Dense(units, activation="relu"), layers.Dense(4)])


teacher, student = network(16), network(6)
teacher.compile("adam", entropy, metrics=["sparse_categorical_accuracy"])
first = teacher.fit(x, labels, batch_size=16, epochs=2, verbose=0)
model = Distiller(student, teacher)
model.compile("adam", metrics=["sparse_categorical_accuracy"])
second = model.fit(x, labels, batch_size=16, epochs=2, verbose=0)
history = {"loss": first.history["loss"] + second.history.get("loss", [])}
history["accuracy"] = second.history["sparse_categorical_accuracy"]
