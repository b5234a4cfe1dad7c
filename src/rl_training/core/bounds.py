"""Returns that normalised scores are measured by: of a random policy (0) and of an expert or a human (1)."""

from __future__ import annotations

import re

from rl_training.core.d4rl import reference_bounds

Bounds = tuple[float, float]

CONTROL_SUITE = (0.0, 1000.0)  # DeepMind Control: a reward of at most 1 in each of 1,000 steps
# Random and human returns of Atari games from no-op starts (Wang et al. 2016, dueling networks, table 2).
_ATARI = """
Alien 227.8 7127.7; Amidar 5.8 1719.5; Assault 222.4 742; Asterix 210 8503.3; Asteroids 719.1 47388.7;
Atlantis 12850 29028.1; BankHeist 14.2 753.1; BattleZone 2360 37187.5; BeamRider 363.9 16926.5; Berzerk 123.7 2630.4;
Bowling 23.1 160.7; Boxing 0.1 12.1; Breakout 1.7 30.5; Centipede 2090.9 12017; ChopperCommand 811 7387.8;
CrazyClimber 10780.5 35829.4; Defender 2874.5 18688.9; DemonAttack 152.1 1971; DoubleDunk -18.6 -16.4; Enduro 0 860.5;
FishingDerby -91.7 -38.7; Freeway 0 29.6; Frostbite 65.2 4334.7; Gopher 257.6 2412.5; Gravitar 173 3351.4;
Hero 1027 30826.4; IceHockey -11.2 0.9; Jamesbond 29 302.8; Kangaroo 52 3035; Krull 1598 2665.5;
KungFuMaster 258.5 22736.3; MontezumaRevenge 0 4753.3; MsPacman 307.3 6951.6; NameThisGame 2292.3 8049;
Phoenix 761.4 7242.6; Pitfall -229.4 6463.7; Pong -20.7 14.6; PrivateEye 24.9 69571.3; Qbert 163.9 13455;
Riverraid 1338.5 17118; RoadRunner 11.5 7845; Robotank 2.2 11.9; Seaquest 68.4 42054.7; Skiing -17098.1 -4336.9;
Solaris 1236.3 12326.7; SpaceInvaders 148 1668.7; StarGunner 664 10250; Surround -10 6.5; Tennis -23.8 -8.3;
TimePilot 3568 5229.2; Tutankham 11.4 167.6; UpNDown 533.4 11693.2; Venture 0 1187.5; VideoPinball 16256.9 17667.9;
WizardOfWor 563.5 4756.5; YarsRevenge 3092.9 54576.9; Zaxxon 32.5 9173.3
"""
ATARI: dict[str, Bounds] = {
    name: (float(low), float(high)) for name, low, high in (entry.split() for entry in _ATARI.split(";"))
}


def score_bounds(env_id: str) -> Bounds | None:
    """The returns that count as 0 and 1 in an environment; None where no reference is known."""
    if env_id.startswith("dm_control/"):
        return CONTROL_SUITE
    if found := re.fullmatch(r"(?:ALE/(\w+)|(\w+)NoFrameskip)-v\d", env_id):
        return ATARI.get(found[1] or found[2])
    return reference_bounds(env_id)
