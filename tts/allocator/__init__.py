"""How compute is divided: how hard a problem is, what more samples of it are worth, and who gets them.

`difficulty` knows how problems are spread over success rates, and what a few samples say of one; `gauges` reads what else tells of it.
`votes` tells what further votes are worth, exactly, `performance` what other strategies achieve, `values` puts both behind one protocol.
`greedy` divides a total by marginal gains, `allocate` wave by wave: the pure `Allocator`. `pace` makes waves as wide as a deadline asks.
`auto` is the strategy that goes by it.
"""
