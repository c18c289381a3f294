"""stub"""
AGAIN, ANSWER, RESTART, YES, NO = "Again", "A: ", "Restart?", " yes", " no"
