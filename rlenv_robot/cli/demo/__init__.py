"""The demonstration: train, deploy over the network, record, replay, retrain, and deploy again."""
