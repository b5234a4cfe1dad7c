"""`rl-training push` and `pull`: agents on the Hugging Face Hub."""

from __future__ import annotations

from typing import Any

from rl_training.cli.arguments import Args, Parser, add_agent, add_command, add_objects, print_answer, whole_number
from rl_training.cli.export_commands import add_seed_index
from rl_training.config.objects import named_objects
from rl_training.core.checks import UserError


def add_push(subparsers: Any) -> None:
    push = add_command(subparsers, "push", run_push, "share an agent on the Hugging Face Hub, with a fresh evaluation")
    add_agent(push)
    _add_repository(push)
    push.add_argument("--num-episodes", type=whole_number, default=20, metavar="N", help="of the evaluation; 0: none")
    push.add_argument("--no-video", action="store_true", help="without a video")
    push.add_argument("--private", action="store_true", help="make a new repository private")
    push.add_argument("--env", metavar="ENV", help="the environment again, if it is in a module (module:Id)")
    add_seed_index(push)


def _add_repository(parser: Parser) -> None:
    parser.add_argument("repo", nargs="?", metavar="REPO", help="user/name")
    parser.add_argument("--endpoint", metavar="URL", help="another hub (default: HF_ENDPOINT, or huggingface.co)")


def run_push(args: Args) -> int:
    from rl_training.deploy.hub import push_agent
    from rl_training.run.agent import load_agent

    if args.target is None or args.repo is None:
        raise UserError("push needs an agent and a repository: rl-training push agent.safetensors me/my-agent")
    agent = load_agent(args.target, args.device, named_objects(args.objects))
    options = {"episodes": args.num_episodes, "video": not args.no_video, "private": args.private}
    address = push_agent(agent, args.repo, **options, seed_index=args.seed_index, env=args.env, endpoint=args.endpoint)
    print_answer(args, {"url": address}, f"pushed {address}")
    return 0


def add_pull(subparsers: Any) -> None:
    pull = add_command(subparsers, "pull", run_pull, "an agent from the Hugging Face Hub; nothing in it is executed")
    _add_repository(pull)
    pull.add_argument("-o", "--output", metavar="FOLDER", help="default: the name of the repository")
    pull.add_argument("--revision", metavar="NAME", help="a branch, a tag or a commit")
    add_objects(pull)


def run_pull(args: Args) -> int:
    from rl_training.deploy.hub import pull_agent

    if args.repo is None:
        raise UserError("pull needs a repository: rl-training pull me/my-agent")
    folder = args.output or args.repo.rpartition("/")[2]
    options = {"revision": args.revision, "endpoint": args.endpoint, "objects": named_objects(args.objects)}
    path = pull_agent(args.repo, folder, **options)
    print_answer(args, {"agent": str(path)}, f"agent  {path}")
    return 0
