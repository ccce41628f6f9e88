"""Two generators and two discriminators, four optimizers, one persistent tape (CycleGAN).

Like: generative/cyclegan
"""

horses, zebras = np.random.default_rng(80).normal(size=(2, 58, 6))
absolute, squared = keras.losses.MeanAbsoluteError(), keras.losses.MeanSquaredError()


def network(units):
    return keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(units)])


class Cycles(keras.Model):
    def __init__(self):
        super().__init__()
        self.parts = [network(6), network(6), network(1), network(1)]

    def compile(self, optimizers):
        super().compile()
        self.optimizers = optimizers

    def train_step(self, data):
        x, y = data
        to_y, to_x, judge_x, judge_y = self.parts
        with tf.GradientTape(persistent=True) as tape:
            fake_y, fake_x = to_y(x, training=True), to_x(y, training=True)
            cycle = 10 * (absolute(x, to_x(fake_y)) + absolute(y, to_y(fake_x)))
            same = 5 * (absolute(y, to_y(y)) + absolute(x, to_x(x)))
            losses = []
            for fake, judge in ((fake_y, judge_y), (fake_x, judge_x)):
                judged = judge(fake)
                losses.append(squared(tf.ones_like(judged), judged) + cycle + same)
            for real, fake, judge in ((x, fake_x, judge_x), (y, fake_y, judge_y)):
                one, other = judge(real), judge(fake)
                losses.append(0.5 * (squared(tf.ones_like(one), one) + squared(tf.zeros_like(other), other)))
        for loss, part, optimizer in zip(losses, self.parts, self.optimizers, strict=True):
            weights = part.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"G": losses[0], "F": losses[1], "X": losses[2], "Y": losses[3]}


model = Cycles()
model.compile([keras.optimizers.Adam(2e-4, beta_1=0.5) for _ in range(4)])
data = tf.data.Dataset.zip(tuple(tf.data.Dataset.from_tensor_slices(one).batch(16) for one in (horses, zebras)))
history = model.fit(data, epochs=2, verbose=0)
