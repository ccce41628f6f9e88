"""--data: a DataFrame becomes each rank's share of its rows."""
