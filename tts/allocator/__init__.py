"""How compute is divided: how hard a problem is, what more samples of it are worth, and who gets them.

`difficulty` knows how problems are spread over success rates, and what a few samples say of one. `votes` tells what further votes
are worth, exactly. `greedy` divides a total by marginal gains. `allocate` puts them together in the pure `Allocator`.
"""
