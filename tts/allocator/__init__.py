"""Division of compute among problems.

It covers the difficulty of problems, the value of further samples, and the division of a total.

difficulty   distribution of problems over success rates, and the posterior of one from a few samples
gauges       other evidence of difficulty: guesses, log-probabilities, a probe of the prompt
votes        exact values of further votes
performance  accuracy of strategies by difficulty and size, from a file (performance_file, performance_schema); shipped
has those that ship values       the value of further samples, by votes, verdicts or a performance model
allocate     the pure `Allocator`: division wave by wave; pace has the width of waves towards a deadline
evidence     what a search of `auto` shows, and the rounds that it is given
auto         the strategy `auto`; default chooses the plan where the caller names none
"""
