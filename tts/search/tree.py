"""The tree of one search: its nodes with their scores, and the tokens that live nodes keep in memory.

The tree makes no decisions: `Search` decides what to add, prune and score. Node numbers follow the order of calls and
rows, never time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from tts.errors import ConfigError
from tts.types import Prompt, Trajectory
from tts.verifiers.base import StepScores


class Tree:
    """Nodes by number, and exact counts of the distinct tokens that live handles keep.

    A token is live while its node, or a descendant of its node, holds a handle.
    """

    def __init__(self) -> None:
        self.nodes: list[Trajectory] = []
        self.scores: dict[tuple[int, str], StepScores] = {}
        self.pruned: set[int] = set()
        self.scratch: set[int] = set()  # nodes of rollouts
        self.held: dict[int, Trajectory] = {}  # nodes whose handle has not been released
        self.prompt_tokens: dict[int, int] = {}  # by root
        self.asked: dict[int, Prompt] = {}  # the prompt of each root
        self.own_prompts: dict[int, str] = {}  # by root: the text of a caller's own prompt
        self.kept: list[int] = []  # distinct tokens of the live set at each `Search.keep`
        self.peak_live = 0
        self.peak_logical = 0
        self._root: list[int] = []  # the root of each node
        # by node whose path was read anew, and by each node below: the path's tokens less those of its nodes
        self._extra_tokens: dict[int, int] = {}
        self._reread_nodes: set[int] = set()  # the nodes whose path was read anew
        self._groups: dict[int, int] = {}  # by root: the earlier group that its candidates belong to
        self._first_groups: dict[int, int] = {}  # by node that is the first part of a divided first step: its group
        self._first_parts: dict[int, Trajectory] = {}  # by divided node: the node of its first part
        self._children: list[int] = []  # by node: all children ever requested
        self._failed: list[int] = []  # by node: the requested children that failed
        self._users: list[int] = []  # by node: 1 if its handle is held, plus the number of live children
        self.live_tokens = 0  # distinct tokens that are live now
        self.logical_tokens = 0  # tokens that the live tips would keep without sharing

    def root_of(self, t: Trajectory) -> int:
        """Return the number of a node's root."""
        return self._root[t.node]

    def own_tokens(self, t: Trajectory) -> int:
        """Return the tokens that this node adds to its path: the prompt, for a root."""
        parent = self.parent_of(t)
        return self.prompt_tokens[t.node] if parent is None else t.num_tokens - parent.num_tokens

    def own_text(self, t: Trajectory) -> str:
        """Return the text that this node adds to its path."""
        first_part = self._first_parts.get(t.node)
        if first_part is None or t.parent is None:
            return t.text
        text_of_first_part = first_part.full_text.removeprefix(t.parent.full_text)
        return t.text[len(text_of_first_part) :]

    def parent_of(self, t: Trajectory) -> Trajectory | None:
        """Return the node above; for a divided node this is the node of its first part."""
        return self._first_parts.get(t.node, t.parent) if self._first_parts else t.parent

    def path_tokens(self, t: Trajectory) -> int:
        """Return the tokens of a path, its prompt included."""
        tokens = self.prompt_tokens[self._root[t.node]] + t.num_tokens
        return tokens + self._extra_tokens.get(t.node, 0) if self._extra_tokens else tokens

    def group_of(self, t: Trajectory) -> int:
        """Return the group of a path's candidate: its root's group, else the group of its first step.

        The group of a first step is the number of its node, unless the step was divided.
        """
        first_step = t if t.depth <= 1 else t.path[1]
        step_group = self._first_groups.get(first_step.node, first_step.node)
        return self._groups.get(self._root[t.node], step_group)

    def add(
        self, t: Trajectory, root_tokens: int, group: int | None = None, *, reread: int | None = None
    ) -> Trajectory:
        """Append a node, which must have the next number.

        Args:
            t: The node to append.
            root_tokens: The prompt's tokens where the node is a root.
            group: The group of a root; None: its own.
            reread: The tokens of the path beyond those of its nodes, where the state was read anew; None: the state
                continues the parent's.
        """
        self.nodes.append(t)
        self._root.append(t.node if t.parent is None else self._root[t.parent.node])
        self._children.append(0)
        self._failed.append(0)
        self._users.append(0)
        if t.parent is None:
            self.prompt_tokens[t.node] = root_tokens
        elif reread is not None:
            self._reread_nodes.add(t.node)
            self._extra_tokens[t.node] = reread
        elif t.parent.node in self._extra_tokens:
            self._extra_tokens[t.node] = self._extra_tokens[t.parent.node]
        if group is not None:
            self._groups[t.node] = group
        if t.handle is not None:
            self._hold(t)
        return t

    def piece_at(self, t: Trajectory, position: int) -> tuple[Trajectory, Trajectory]:
        """Return the part of a divided node that contains a token position, and the node above this part.

        The position is a number of tokens after the prompt. It is not before the part's beginning, and before the
        part's end. A node that was never divided is its own part.
        """
        part = t
        above = self.parent_of(t)
        while above is not None and above.num_tokens > position:
            part = above
            above = self.parent_of(above)
        assert above is not None, f"position {position} is not inside of node {t.node}"
        return part, above

    def divide(self, t: Trajectory, first: Trajectory, reread: int) -> Trajectory:
        """Insert the first part of a node above the node.

        The rest of the node, with all its descendants, becomes the first child of the first part.

        Args:
            t: The trajectory whose last node is divided.
            first: The new node, whose state was read anew.
            reread: As in `add`.
        """
        if first.depth == 1:
            self._first_groups[first.node] = self.group_of(t)
        self.add(dataclasses.replace(first, handle=None), 0, reread=reread)
        self._children[first.node] = 1
        self._users[first.node] = int(self._users[t.node] > 0)
        self._first_parts[t.node] = first
        self.nodes[first.node] = first
        self._hold(first)
        return first

    def replace(self, t: Trajectory) -> Trajectory:
        """Replace the trajectory of a node without children, and return the new one.

        The node's row went on, or ended with another status.
        """
        was_held = self.release(self.nodes[t.node])
        self.nodes[t.node] = t
        if t.handle is not None and (was_held or t.node not in self.pruned):
            self._hold(t)
        return t

    def check_usable(self, ts: Iterable[Trajectory], *, ended: bool = False) -> None:
        """Refuse trajectories that cannot be continued.

        Args:
            ts: The trajectories.
            ended: Whether a finished trajectory can be continued.

        Raises:
            ConfigError: A trajectory is not active, or was pruned.
        """
        for t in ts:
            if t.status != "active" and not (ended and t.status == "finished"):
                hint = "search.extend([t], text) continues it" if t.status == "finished" else ""
                which = "an active or finished" if ended else "an active"
                raise ConfigError(
                    f"node {t.node} is {t.status}, but only {which} trajectory can be continued", hint=hint
                )
            if t.node in self.pruned:
                raise ConfigError(f"node {t.node} was pruned by keep(), but only a live trajectory can be continued")

    def count_failed_child(self, t: Trajectory) -> None:
        """Note that a requested child failed, so that the next child is no further branch."""
        self._failed[t.node] += 1

    def next_child(self, t: Trajectory) -> int:
        """Return the index of the next child, and count this child. Indices run on over all calls."""
        index = self._children[t.node]
        self._children[t.node] = index + 1
        return index

    def children_of(self, t: Trajectory) -> int:
        """Return the number of requested children that did not fail."""
        return self._children[t.node] - self._failed[t.node]

    def _hold(self, t: Trajectory) -> None:
        self.held[t.node] = t
        node: Trajectory | None = t
        users, first_parts = self._users, self._first_parts
        if not users[t.node]:
            extra = self._extra_tokens.get(t.node, 0) if self._extra_tokens else 0
            self.logical_tokens += self.prompt_tokens[self._root[t.node]] + t.num_tokens + extra
        while node is not None:
            users[node.node] += 1
            if users[node.node] > 1:
                # the ancestor is live already; if it was a tip, it no longer is
                if node is not t and users[node.node] == 2 and node.node in self.held:
                    self.logical_tokens -= self.path_tokens(node)
                break
            above = first_parts.get(node.node, node.parent) if first_parts else node.parent
            self.live_tokens += self.prompt_tokens[node.node] if above is None else node.num_tokens - above.num_tokens
            node = above
        if self.live_tokens > self.peak_live:
            self.peak_live, self.peak_logical = self.live_tokens, self.logical_tokens

    def release(self, t: Trajectory) -> bool:
        """Count a node's handle as released; return False if it was released before."""
        if self.held.pop(t.node, None) is None:
            return False
        users, first_parts = self._users, self._first_parts
        if users[t.node] == 1:
            extra = self._extra_tokens.get(t.node, 0) if self._extra_tokens else 0
            self.logical_tokens -= self.prompt_tokens[self._root[t.node]] + t.num_tokens + extra
        node: Trajectory | None = t
        while node is not None:
            users[node.node] -= 1
            if users[node.node] > 0:
                if node is not t and users[node.node] == 1 and node.node in self.held:
                    self.logical_tokens += self.path_tokens(node)
                break
            above = first_parts.get(node.node, node.parent) if first_parts else node.parent
            self.live_tokens -= self.prompt_tokens[node.node] if above is None else node.num_tokens - above.num_tokens
            node = above
        return True

    def distinct_tokens(self, ts: Iterable[Trajectory]) -> int:
        """Return the distinct tokens, prompts included, on the paths of `ts`."""
        return sum(map(self.own_tokens, self._nodes_on(ts)))

    def nodes_to_drop(self, keep: Iterable[int]) -> list[Trajectory]:
        """Return the held nodes that are neither in `keep` nor roots, in node order."""
        kept = set(keep)
        return [t for node, t in sorted(self.held.items()) if node not in kept and t.parent is not None]

    def path_nodes(self, ts: Iterable[Trajectory]) -> set[int]:
        """Return the nodes on the paths of `ts`."""
        return {node.node for node in self._nodes_on(ts)}

    def _nodes_on(self, ts: Iterable[Trajectory]) -> Iterator[Trajectory]:
        """Yield each node on the paths of `ts` once."""
        visited: set[int] = set()
        for t in ts:
            node: Trajectory | None = t
            while node is not None and node.node not in visited:
                visited.add(node.node)
                yield node
                node = self.parent_of(node)

    def scored_tokens(self, t: Trajectory, verifier: str) -> int:
        """Return the tokens after the prompt up to the last node of a path that a verifier scored; 0: none.

        Nodes above the place where the path was read anew do not count, because their scores are of another state. A
        node without text does not count, because its score read nothing.
        """
        node: Trajectory | None = t
        while node is not None:
            if (node.node, verifier) in self.scores and (node.text or node.full_text):
                return node.num_tokens
            node = None if node.node in self._reread_nodes else node.parent
        return 0

    def unread_tokens(self, t: Trajectory) -> int:
        """Return the most tokens that a verifier reads again, because the path was read anew."""
        return self.path_tokens(t) if t.node in self._extra_tokens else 0

    def can_resume(self, t: Trajectory, verifier: str) -> bool:
        """Whether a verifier needs to read only the new part of a path.

        The path's state must be held. If the path was read anew, the verifier must have scored it since.
        """
        return t.node in self.held and (t.node not in self._extra_tokens or self.scored_tokens(t, verifier) > 0)
