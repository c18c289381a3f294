"""Tables, figures, pages and files of results."""
