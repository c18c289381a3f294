"""The normal forms of mathematical answers, without a parser.

They cover characters, kinds, units, numbers and their structure.
"""
