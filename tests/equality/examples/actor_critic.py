"""Actor and critic: an episode is one tape, whose loss is a sum over its steps; all workers play the same one.

Like: rl/actor_critic_cartpole
"""

np.random.seed(1)
given = keras.Input((3,))
common = layers.Dense(8, activation="relu")(given)
model = keras.Model(given, [layers.Dense(2, activation="softmax")(common), layers.Dense(1)(common)])
optimizer, huber, losses = keras.optimizers.Adam(0.01), keras.losses.Huber(), []
for _episode in range(5):
    state, logarithms, values, rewards = np.random.normal(size=3), [], [], []
    with tf.GradientTape() as tape:
        for _step in range(6):
            chances, value = model(tf.convert_to_tensor(state[None]))
            action = np.random.choice(2, p=np.squeeze(chances))
            state = np.tanh(state + action - 0.5)
            logarithms.append(tf.math.log(chances[0, action]))
            values.append(value)
            rewards.append(state.sum())
        returns = np.cumsum(rewards[::-1])[::-1]
        returns = (returns - returns.mean()) / (returns.std() + 1e-8)
        actor = [-one * (wanted - value[0, 0]) for one, wanted, value in zip(logarithms, returns, values, strict=True)]
        critic = [huber(tf.constant([[wanted]]), value) for wanted, value in zip(returns, values, strict=True)]
        loss = sum(actor) + sum(critic)
    weights = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
    losses.append(float(loss))
history = {"loss": losses}
