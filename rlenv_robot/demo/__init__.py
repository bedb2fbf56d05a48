"""The main job end to end: train, deploy over the network, record, replay, retrain from the record, deploy again."""
