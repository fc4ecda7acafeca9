"""Token shards in, batches out."""
