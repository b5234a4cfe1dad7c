"""The learning proofs: configs, numbers of seeds and required returns, for `learn.py`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Proof:
    config: str
    seeds: int
    episodes: int  # fresh ones, for each agent
    threshold: float | None  # the required interquartile mean of the judged agents; None: the peer's
    reference: str
    changes: dict[str, Any] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    data: tuple[str, ...] = ()  # files in --data, of one dataset; the final agent is judged, as in published results
    at_most: bool = False  # the threshold must not be passed: what is left out is needed
    # "best": the best agents; "final": the last ones; "evaluation": the best mean over seeds of one evaluation
    judged: str = "best"


PENDULUM = {"replay": "pendulum_replay_v1_1_0.npz", "expert": "pendulum_expert_sac_50eps.npz"}
HOPPER = {"medium": ("hopper_v5_medium.npz",), "expert": ("hopper_v5_expert.npz",)}
HOPPER["both"] = HOPPER["medium"] + HOPPER["expert"]
# D4RL's scores of CORL's last agents after 1M updates, on hopper-medium-v2 and hopper-medium-expert-v2: a yardstick for
# similar datasets. Required: the mean return of the data; for both files nearly that of the better one.
CORL = {"bc": (53.5, 52.3), "td3_bc": (60.4, 101.2), "cql": (59.1, 99.3), "iql": (67.5, 107.4)}
REQUIRED = {"medium": 1544.0, "expert": 2850.0, "both": 2600.0}


def offline_proofs() -> dict[str, Proof]:
    found = {}
    for algo, (medium, medium_expert) in CORL.items():
        for kind, name in PENDULUM.items():
            reference = f"the data: {'-180.5' if kind == 'replay' else '-174.7'}"
            config = f"configs/{algo}/pendulum.yaml"
            found[f"{algo}-pendulum-{kind}"] = Proof(config, 5, 100, -200.0, reference, data=(name,), judged="final")
        for kind, files in HOPPER.items():
            published = {"medium": f"{medium}", "expert": "none", "both": f"{medium_expert} (medium-expert)"}[kind]
            required = REQUIRED["medium"] if algo == "bc" and kind == "both" else REQUIRED[kind]
            config, reference = f"configs/{algo}/hopper.yaml", f"D4RL score {published} (CORL, 1M updates)"
            found[f"{algo}-hopper-{kind}"] = Proof(
                config, 5, 20, required, reference, {"eval_interval": 100_000}, data=files, judged="final"
            )
        short = {"total_timesteps": 20_000, "eval_interval": 20_000}  # the budget of the peer, which is slow
        seeds = 16 if algo == "bc" else 5  # the returns of cloned policies vary much between seeds
        found[f"{algo}-hopper-medium-20k"] = Proof(
            f"configs/{algo}/hopper.yaml", seeds, 100, None, "the data: 1544", short, data=HOPPER["medium"],
            judged="final",
        )  # fmt: skip
    return found


PONG = ("env_kwargs.wrappers.atari.repeat_action_probability=0",)  # as the references
BREAKOUT = (*PONG, "env_kwargs.wrappers.atari.terminal_on_life_loss=true")
# Twice the environments and half the steps in a rollout: as many updates, with work for sixteen cores.
ATARI, SHORT_ROLLOUT = {"total_timesteps": 3_500_000, "num_envs": 16, "eval_interval": 500_000}, "rollout_steps=64"
MEMORY = "partial_envs:CartPoleWithoutVelocities-v0"
MEMORY_SETTINGS = (
    "recurrent=gru", "recurrent_size=64", "hidden_sizes=[64]", "sequence_length=32", "epochs=10",
    "normalize_observations=true", "normalize_returns=true",  # else values drown the policy in the shared memory
)  # fmt: skip
TIANSHOU = {"HalfCheetah-v5": 5784, "Hopper-v5": 2609, "Walker2d-v5": 3589}  # best average evaluation within 1M
CLEANRL = {"ppo": (20.4, 414.7), "pqn": (20.5, 384.9)}  # Pong and Breakout


def on_policy_proofs() -> dict[str, Proof]:
    found = {
        "ppo-cartpole": Proof("configs/ppo/cartpole.yaml", 8, 100, 490.0, "500 (RL Zoo, 100k steps)"),
        "ppo-pendulum": Proof("configs/ppo/pendulum.yaml", 8, 100, -200.0, "-172 +- 104 (RL Zoo, 100k steps)"),
        "ppo-torch_pendulum": Proof("configs/ppo/torch_pendulum.yaml", 8, 100, -200.0, "-172 (RL Zoo, Pendulum-v1)"),
        "ppo-lunarlander": Proof("configs/ppo/lunarlander.yaml", 8, 100, 230.0, "242 +- 32 (RL Zoo, 1M steps, v2)"),
        "ppo-bipedalwalker": Proof("configs/ppo/bipedalwalker.yaml", 8, 20, 288.0, "288 (RL Zoo, 5M steps)"),
        "ppo-memory": Proof(
            "configs/ppo/cartpole.yaml", 8, 100, 475.0, "none published; 475 is CartPole's threshold",
            {"env_id": MEMORY, "total_timesteps": 200_000}, MEMORY_SETTINGS,
        ),
        "ppo-memory_left_out": Proof(
            "configs/ppo/cartpole.yaml", 8, 100, 250.0, "what the same network without memory must not reach",
            {"env_id": MEMORY, "total_timesteps": 200_000}, (*MEMORY_SETTINGS, "recurrent=null"), at_most=True,
        ),
        "ppo-masks": Proof(
            "configs/ppo/cartpole.yaml", 8, 100, 49.0, "50: an invalid action ends the episode",
            {"env_id": "masked_envs:Doors-v0", "total_timesteps": 20_000},
        ),
        "ppo-masks_left_out": Proof(
            "configs/ppo/cartpole.yaml", 8, 100, 5.0, "what the same without masks must not reach",
            {"env_id": "masked_envs:DoorsWithout-v0", "total_timesteps": 20_000}, at_most=True,
        ),
        "a2c-cartpole": Proof("configs/a2c/cartpole.yaml", 8, 100, 475.0, "500 (RL Zoo, 500k steps)"),
        "pqn-cartpole": Proof("configs/pqn/cartpole.yaml", 8, 100, 475.0, "none published at this budget"),
    }  # fmt: skip
    for env_id, published in TIANSHOU.items():
        found[f"ppo-{env_id.removesuffix('-v5').lower()}-1m"] = Proof(
            "configs/ppo/halfcheetah.yaml", 8, 10, 0.85 * published, f"{published:,} (tianshou, 10 seeds)",
            {"env_id": env_id}, judged="evaluation",
        )  # fmt: skip
    for algo, (pong, breakout) in CLEANRL.items():
        config = f"configs/{algo}/pong.yaml"
        said = "{} (CleanRL, 10M steps, training)".format
        found[f"{algo}-pong"] = Proof(config, 3, 10, 19.0, said(pong), ATARI, (*PONG, SHORT_ROLLOUT))
        changes = {**ATARI, "env_id": "ALE/Breakout-v5", "total_timesteps": 10_000_000}
        found[f"{algo}-breakout"] = Proof(
            config, 3, 10, breakout, said(breakout), changes, (*BREAKOUT, SHORT_ROLLOUT)
        )
    return found


# Means over 5 to 10 seeds at 100k steps of HalfCheetah-v4 and 200k of Humanoid-v4, from the raw curves that the SimbaV2
# and FlashSAC repositories publish; TQC's are RL Zoo's on v3, one run.
CURVES = {
    "sac": ("6,156", "994"),
    "tqc": ("5,001", "1,740"),
    "redq": ("7,823", None),
    "droq": ("7,744", None),
    "crossq": ("8,153", "6,599"),
    "simba": ("4,757", "5,263"),
    "flashsac": ("9,815", "9,640"),
}
# Evaluations cost a tenth of such a run at this cadence; the final agents have fresh episodes anyway.
SPARSE = {"eval_interval": 20_000, "eval_episodes": 5}
CHEETAH = {**SPARSE, "env_id": "HalfCheetah-v4", "total_timesteps": 100_000}
HUMANOID = {**SPARSE, "env_id": "Humanoid-v4", "total_timesteps": 200_000}
CHEETAH_ENTROPY = ("target_entropy=-3",)  # MBPO's value, which REDQ uses; SimBa's is half the 6 action dimensions


def published(method: str, humanoid: bool = False) -> str:
    """The reference of a proof of `CURVES`."""
    value, steps = CURVES[method][humanoid], "200k" if humanoid else "100k"
    source = "RL Zoo's curve, v3, one run" if method == "tqc" else "published curve"
    return f"{value} at {steps} steps ({source})"


def modern_proofs() -> dict[str, Proof]:
    """Methods of 2020 to 2026 beside published curves: the agents at that step are judged, not the best.

    FlashSAC's learning rate falls as in a run of 1M steps, on which its curves lie.
    """
    cheetah = {
        "flashsac": ("configs/flashsac/halfcheetah.yaml", 8, 9000.0, {"schedule_steps": 1_000_000}, ()),
        "crossq": ("configs/crossq/halfcheetah.yaml", 8, 7300.0, {}, ()),
        "droq": ("configs/droq/halfcheetah.yaml", 5, 6900.0, {}, ()),
        "sac": ("configs/sac/halfcheetah.yaml", 8, 3900.0, {}, ()),  # of the proof on v5, with the same settings
        "tqc": ("configs/tqc/halfcheetah.yaml", 8, 4250.0, {}, ()),
        "redq": ("configs/redq/hopper.yaml", 5, 6900.0, {}, CHEETAH_ENTROPY),
        "simba": ("configs/sac/humanoid_simba.yaml", 5, 4000.0, {}, CHEETAH_ENTROPY),
    }
    humanoid = {
        "flashsac": ("configs/flashsac/humanoid.yaml", 5, 8000.0, {"schedule_steps": 1_000_000}, ()),
        "crossq": ("configs/crossq/humanoid.yaml", 8, 5000.0, {}, ()),
        "simba": ("configs/sac/humanoid_simba.yaml", 5, 4000.0, {}, ()),
        "sac": ("configs/sac/halfcheetah.yaml", 8, 800.0, {}, ()),
        "tqc": ("configs/tqc/halfcheetah.yaml", 8, 1000.0, {}, ()),
    }
    found = {}
    for method, (config, seeds, wanted, changes, overrides) in cheetah.items():
        found[proof_name(method, "halfcheetah")] = Proof(
            config, seeds, 10, wanted, published(method), {**CHEETAH, **changes}, overrides, judged="final"
        )
    for method, (config, seeds, wanted, changes, overrides) in humanoid.items():
        found[proof_name(method, "humanoid")] = Proof(
            config, seeds, 10, wanted, published(method, True), {**HUMANOID, **changes}, overrides, judged="final"
        )
    found["flashsac-walker2d-200k"] = replace(
        found["flashsac-humanoid-200k"], threshold=4500.0, reference="5,311 at 200k steps (published curve)",
        changes={**found["flashsac-humanoid-200k"].changes, "env_id": "Walker2d-v4"},
    )  # fmt: skip
    crossq = found["crossq-halfcheetah-100k"]  # the effect of bfloat16: the same with float32 is beside it
    found["crossq-halfcheetah-bfloat16-100k"] = replace(crossq, overrides=("precision=bfloat16",))
    return found


def proof_name(method: str, task: str) -> str:
    """The name of the proof of a method of `CURVES`: `simba` is SAC with such networks."""
    steps = {"halfcheetah": "100k", "humanoid": "200k"}[task]
    if method == "simba":
        return f"sac-{task}-simba-{steps}"
    # SAC's older proof is on HalfCheetah-v5.
    return f"{method}-{task}-v4-{steps}" if (method, task) == ("sac", "halfcheetah") else f"{method}-{task}-{steps}"


PROOFS = {
    "dqn-cartpole": Proof(
        "configs/dqn/cartpole.yaml", 8, 100, 475.0, "500 (RL Zoo, 50k steps); 475 is Gymnasium's threshold"
    ),
    "dqn-acrobot": Proof("configs/dqn/acrobot.yaml", 8, 100, -80.0, "-76.6 (RL Zoo, 100k steps)"),
    "dqn-lunarlander": Proof("configs/dqn/lunarlander.yaml", 8, 100, None, "154 +- 79 (RL Zoo, 100k steps, v2)"),
    "discrete_sac-cartpole": Proof(
        "configs/discrete_sac/cartpole.yaml", 8, 100, 475.0, "none published; 475 is Gymnasium's threshold"
    ),
    "discrete_sac-lunarlander": Proof(
        "configs/discrete_sac/lunarlander.yaml", 8, 100, 154.0, "none published (DQN: 154, RL Zoo, 100k steps, v2)"
    ),
    "dqn-mountaincar": Proof("configs/dqn/mountaincar.yaml", 8, 100, None, "-100.8 (RL Zoo, 120k steps)"),
    "c51_dqn-cartpole": Proof("configs/c51_dqn/cartpole.yaml", 8, 100, 475.0, "481 +- 21 (CleanRL, 500k, training)"),
    "c51_dqn-acrobot": Proof("configs/c51_dqn/acrobot.yaml", 8, 100, -80.0, "-87.7 (CleanRL, 500k, training)"),
    "c51_dqn-lunarlander": Proof("configs/c51_dqn/lunarlander.yaml", 8, 100, None, "none published"),
    "c51_dqn-mountaincar": Proof("configs/c51_dqn/mountaincar.yaml", 8, 100, None, "-166 (CleanRL, 500k, training)"),
    "qr_dqn-cartpole": Proof("configs/qr_dqn/cartpole.yaml", 8, 100, 475.0, "500 (RL Zoo qrdqn, 50k steps)"),
    "qr_dqn-acrobot": Proof("configs/qr_dqn/acrobot.yaml", 8, 100, -80.0, "-69.1 (RL Zoo, 100k steps)"),
    "qr_dqn-lunarlander": Proof("configs/qr_dqn/lunarlander.yaml", 8, 100, None, "70 +- 226 (RL Zoo, 100k, v2)"),
    "qr_dqn-mountaincar": Proof("configs/qr_dqn/mountaincar.yaml", 8, 100, None, "-106.0 (RL Zoo, 120k steps)"),
    "iqn-cartpole": Proof("configs/iqn/cartpole.yaml", 8, 100, 475.0, "none published"),
    "rainbow_dqn-cartpole": Proof("configs/rainbow_dqn/cartpole.yaml", 8, 100, 475.0, "none published"),
    "sac-pendulum": Proof("configs/sac/pendulum.yaml", 8, 100, -200.0, "-157 +- 89 (RL Zoo, 20k steps)"),
    "sac-halfcheetah-100k": Proof(
        "configs/sac/halfcheetah.yaml", 16, 10, 3900.0, "4,601 (RL Zoo) to 4,926 (Dopamine) at 100k steps",
        {"total_timesteps": 100_000},
    ),
    "dqn-pong-2m": Proof(  # without sticky actions, as the reference
        "configs/dqn/pong.yaml", 3, 10, 18.0, "20 (RL Zoo's curve at 2M steps, no sticky actions)",
        {"total_timesteps": 2_000_000}, PONG,
    ),
    "td3-pendulum": Proof("configs/td3/pendulum.yaml", 8, 100, -200.0, "-152 +- 90 (RL Zoo, 20k steps)"),
    "tqc-pendulum": Proof("configs/tqc/pendulum.yaml", 8, 100, -200.0, "-151 +- 88 (RL Zoo, 20k steps)"),
    "redq-pendulum": Proof("configs/redq/pendulum.yaml", 8, 100, -200.0, "none published (SAC: -157, RL Zoo)"),
    "droq-pendulum": Proof("configs/droq/pendulum.yaml", 8, 100, -200.0, "none published (SAC: -157, RL Zoo)"),
    "crossq-pendulum": Proof("configs/crossq/pendulum.yaml", 5, 100, -200.0, "none published (SAC: -157, RL Zoo)"),
    "flashsac-pendulum": Proof("configs/flashsac/pendulum.yaml", 5, 100, -200.0, "none published (SAC: -157, RL Zoo)"),
    "td3-halfcheetah-200k": Proof(
        "configs/td3/halfcheetah.yaml",
        16,  # batches of eight gave interquartile means from 6,671 to 7,984
        10,
        6000.0,
        "6,995 (RL Zoo's curve at 200k steps, one run)",
        overrides=("eval_interval=25000",),
    ),
    "tqc-halfcheetah-200k": Proof(
        "configs/tqc/halfcheetah.yaml", 8, 10, 5700.0, "6,697 (RL Zoo's curve at 200k steps, one run)"
    ),
    "redq-hopper-125k": Proof(
        "configs/redq/hopper.yaml", 4, 10, 3200.0, "3,517 (the paper); 3,342 +- 45 (nnabla-rl) at 125k steps",
        {"eval_interval": 12_500},
    ),
    "drq-pendulum-pixels": Proof("configs/drq/pendulum_pixels.yaml", 3, 20, -250.0, "none published from pixels"),
    "drqv2-pendulum-pixels": Proof("configs/drqv2/pendulum_pixels.yaml", 3, 20, -250.0, "none published from pixels"),
    "drq-cartpole-swingup-100k": Proof(
        "configs/drq/cartpole_swingup.yaml", 3, 10, 667.0, "759 +- 93 (the authors, 100k environment steps, 10 seeds)"
    ),
    "drqv2-cartpole-swingup-100k": Proof(
        "configs/drqv2/cartpole_swingup.yaml", 3, 10, 372.0, "626 +- 254 (the authors, 100k frames, 10 seeds)"
    ),
    **offline_proofs(),
    **on_policy_proofs(),
    **modern_proofs(),
}  # fmt: skip
# The effect of bfloat16 on scores: each beside the same proof with float32.
PROOFS |= {
    f"{name}-bfloat16": replace(PROOFS[name], overrides=("precision=bfloat16",))
    for name in ("sac-pendulum", "crossq-pendulum", "flashsac-pendulum", "drq-pendulum-pixels")
}
