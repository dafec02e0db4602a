"""Make the buckets named as arguments, where they are not there yet; for compose.yaml."""

import sys

import boto3

client = boto3.client("s3")
there = {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}
for name in sys.argv[1:]:
    if name not in there:
        client.create_bucket(Bucket=name)
