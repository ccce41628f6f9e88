"""Deep Q-learning: a replay buffer, a second network, predictions of single states, and train_on_batch.

Like: rl/deep_q_network_breakout
"""

import random

random.seed(4)
np.random.seed(4)


def network():
    made = keras.Sequential([keras.Input((3,)), layers.Dense(12, activation="relu"), layers.Dense(2)])
    made.compile(keras.optimizers.Adam(0.01), "huber")
    return made


model, target = network(), network()
target.set_weights(model.get_weights())
memory, losses, curious, state = [], [], 1.0, np.zeros(3)
for step in range(40):
    explores = np.random.rand() < curious
    action = np.random.randint(2) if explores else int(np.argmax(model.predict(state[None], verbose=0)[0]))
    reached = np.tanh(state + np.random.normal(size=3) + action - 0.5)
    memory.append((state, action, float(reached.sum()), reached))
    state, curious = reached, curious * 0.95
    if len(memory) >= 12:
        states, actions, rewards, next_states = map(np.array, zip(*random.sample(memory, 11), strict=True))
        values = np.array(model.predict_on_batch(states))
        values[np.arange(11), actions] = rewards + 0.9 * np.max(target.predict_on_batch(next_states), 1)
        losses.append(float(model.train_on_batch(states, values)))
    if step % 10 == 0:
        target.set_weights(model.get_weights())
history = {"loss": losses}
