"""Draw recorded episodes as plots, montages and videos."""
