"""The normal forms of mathematical answers: characters, kinds, units, numbers and their structure, without a parser."""
