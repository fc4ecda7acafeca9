"""Raw text in, token shards out."""
