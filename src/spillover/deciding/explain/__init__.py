"""Why a job waits, and what each cluster says to it."""
