#!/bin/sh
# A script is a job too. The #SPILL lines have the same options as a job file.
#SPILL --name count-words --cpu 1 --memory 128Mi
#SPILL --walltime 5m --estimate 10s --label kind=example
set -eu
words=$(cat /etc/hosts | wc -w)
echo "there are $words words"
