"""How far a verifier can be trusted: what its recorded scores say of right and wrong, and what choosing by them comes to."""
