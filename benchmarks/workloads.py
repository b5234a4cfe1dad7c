"""The workloads of `bench.py`: the same work for this library and for its peers, as far as possible."""

from __future__ import annotations

import sys
from typing import Any

from pixel_speed import task as pixel_task
from turns import Peer, Task

REPLAY = ["learning_starts=200", "batch_size=256"]  # the same names on both sides
DISCRETE = ["learning_starts=200", "batch_size=64", "hidden_sizes=[64,64]", "train_frequency=1",
            "gradient_updates_per_step=1", "buffer_capacity=100000"]  # fmt: skip
PEER_DISCRETE = ["learning_starts=200", "batch_size=64", "train_freq=1", "gradient_steps=1", "buffer_size=100000"]
TIANSHOU_DISCRETE = ["learning_starts=200", "batch_size=64", "hidden_sizes=[64,64]", "threads=1"]
ATOMS, COPY = ["num_atoms=51", "v_min=0", "v_max=200"], "target_update_interval=500"
LEVELS = ["num_quantiles=8", "num_target_quantiles=8", "num_policy_quantiles=32"]  # tianshou's numbers
MILLION, PEER_MILLION = "buffer_capacity=1000000", "buffer_size=1000000"
WIDE, PEER_WIDE = "hidden_sizes=[256,256]", 'policy_kwargs={"net_arch":[256,256]}'
CHEETAH, CARTPOLE = "HalfCheetah-v5", "CartPole-v1"
PPO, PEER_PPO = ["rollout_steps=512", "batch_size=64", "epochs=10"], ["n_steps=512", "batch_size=64", "n_epochs=10"]

LONGER: dict[str, Any] = {"stretch": 400, "warm_up": 400}  # steps of a millisecond

# End to end, in environment steps: acting, stepping, storing and learning.
TRAINING = {
    "sac-halfcheetah": Task(
        "sac", CHEETAH, [*REPLAY, WIDE, MILLION],
        [Peer("stable_baselines3", "SAC", [*REPLAY, PEER_MILLION]), Peer("sbx", "SAC", [*REPLAY, PEER_MILLION])],
    ),
    "td3-halfcheetah": Task(
        "td3", CHEETAH, [*REPLAY, WIDE, MILLION],
        [Peer("stable_baselines3", "TD3", [*REPLAY, PEER_MILLION, PEER_WIDE]),
         Peer("sbx", "TD3", [*REPLAY, PEER_MILLION, PEER_WIDE])],
    ),
    "tqc-halfcheetah": Task(
        "tqc", CHEETAH,
        [*REPLAY, WIDE, "critic_hidden_sizes=[256,256]", "num_critics=2", "num_quantiles=25",
         "top_quantiles_to_drop_per_net=2"],
        [Peer("sb3_contrib", "TQC", [*REPLAY, "top_quantiles_to_drop_per_net=2",
                                     'policy_kwargs={"n_critics":2,"n_quantiles":25,"net_arch":[256,256]}'])],
    ),
    "dqn-cartpole": Task(
        "dqn", CARTPOLE, DISCRETE, [Peer("stable_baselines3", "DQN", PEER_DISCRETE), Peer("sbx", "DQN", PEER_DISCRETE)],
        **LONGER,
    ),
    "qr_dqn-cartpole": Task(
        "qr_dqn", CARTPOLE, [*DISCRETE, "num_quantiles=200", "max_grad_norm=null"],
        [Peer("sb3_contrib", "QRDQN", [*PEER_DISCRETE, 'policy_kwargs={"n_quantiles":200,"net_arch":[64,64]}'])],
    ),
    "crossq-halfcheetah": Task(
        "crossq", CHEETAH, [*REPLAY, WIDE, "critic_hidden_sizes=[512,512]", MILLION],
        [Peer("sbx", "CrossQ", [*REPLAY, PEER_MILLION, 'policy_kwargs={"net_arch":{"pi":[256,256],"qf":[512,512]}}'])],
    ),
    "redq-hopper": Task(
        "redq", "Hopper-v5",
        [*REPLAY, WIDE, "num_critics=10", "subset_size=2", "gradient_updates_per_step=20"],
        [Peer("tianshou", "REDQ", [*REPLAY, "ensemble_size=10", "subset_size=2", "updates_per_step=20"],
              "side_tianshou.py", "tianshou")],
        stretch=20, warm_up=210,  # of 20 updates each
    ),
    **{
        f"{algo}-cartpole": Task(
            algo, CARTPOLE, [*DISCRETE, *ours],
            # One thread, as our side chooses for networks of this size.
            [Peer("tianshou", peer, [*TIANSHOU_DISCRETE, *theirs], "side_tianshou.py", "tianshou")],
            **LONGER,
        )
        for algo, peer, ours, theirs in (
            ("c51_dqn", "C51", ATOMS, [*ATOMS, COPY]), ("iqn", "IQN", LEVELS, [COPY]),
            ("discrete_sac", "DiscreteSAC", [], []),
        )
    },
    **{
        f"ppo-{env_id.partition('-')[0].lower()}-{envs}": Task(
            "ppo", env_id, [*PPO, f"num_envs={envs}"],
            # One thread, as our side chooses for networks of this size.
            [Peer("stable_baselines3", "PPO", [*PEER_PPO, f"num_envs={envs}", "threads=1"]),
             Peer("plain", "PPO", [*PPO, f"num_envs={envs}", "threads=1"], "side_ppo_eager.py", sys.executable)],
            stretch=512, warm_up=2 * 512, rows=envs,  # turns of one rollout with its learning
        )
        for env_id, envs in ((CARTPOLE, 8), (CHEETAH, 1), (CHEETAH, 8))
    },
    "a2c-cartpole": Task(
        "a2c", CARTPOLE, ["num_envs=8"], [Peer("stable_baselines3", "A2C", ["num_envs=8", "threads=1"])],
        stretch=500, warm_up=500, rows=8,
    ),
}  # fmt: skip

# Updates alone, on random data; of pixels the peer is the same as the authors wrote it, in eager torch.
NETWORKS = ["batch_size=256", WIDE]
UPDATES = {
    f"{algo}-updates": Task(
        algo, CHEETAH, [*NETWORKS, *settings],
        [Peer("d3rlpy", peer, [*NETWORKS, *settings], "side_d3rlpy.py", "d3rlpy")],
        stretch=stretch, script="side_learner.py", warm_up=100, unit="updates",
    )
    for algo, peer, settings, stretch in (
        ("iql", "IQL", [], 400), ("td3_bc", "TD3PlusBC", [], 400), ("cql", "CQL", ["num_cql_samples=10"], 60),
        ("bc", "BC", [], 1000),
    )
}  # fmt: skip
UPDATES |= {f"{algo}-updates": pixel_task(algo, "cpu", workers=1) for algo in ("drq", "drqv2")}

# One call after the other in one process: `predict` of 1 and 1,024 observations, a batch from a full replay.
CALLS = {
    **{
        f"predict-{algo}-{rows}": Task(
            algo, env_id, [f"rows={rows}", *settings],
            [Peer("stable_baselines3", algo.upper(), [f"rows={rows}", *peer_settings], "side_sb3_calls.py")],
            stretch=2000 if rows == 1 else 50, script="side_calls.py", warm_up=100, unit="calls",
        )
        for algo, env_id, settings, peer_settings in (
            ("sac", CHEETAH, [WIDE], []), ("td3", CHEETAH, [WIDE], [PEER_WIDE]),
            ("dqn", CARTPOLE, ["hidden_sizes=[64,64]"], []), ("ppo", CHEETAH, [], []),
        )
        for rows in (1, 1024)
    },
    "replay-sampling": Task(
        "sac", CHEETAH, ["batch=256"], [Peer("stable_baselines3", "SAC", ["batch=256"], "side_sb3_calls.py")],
        stretch=2000, script="side_calls.py", warm_up=100, unit="calls",
    ),
}  # fmt: skip

# A checkpoint when 5,000 transitions are new, and the resume from it: of a replay of 50,000.
FILES = {
    f"{what}-sac": Task(
        "sac", CHEETAH, [what, "buffer_capacity=50000"],
        [Peer("stable_baselines3", "SAC", [what, "buffer_size=50000"], "side_sb3_files.py")],
        stretch=5_000, script="side_files.py", warm_up=50_000, unit="calls",
    )
    for what in ("save", "resume")
}  # fmt: skip

GROUPS = {"training": TRAINING, "updates": UPDATES, "calls": CALLS, "files": FILES}
# One of each group, the cheapest, for a first look.
QUICK = ("dqn-cartpole", "iql-updates", "predict-sac-1", "predict-dqn-1", "predict-sac-1024", "replay-sampling", *FILES)
