#!/bin/bash
# Two machines of eight GPUs under Slurm; goes on by itself after preemption or the time limit.
#   sbatch configuration/accelerate/slurm.sh configuration/pretrain/paper.yaml runs/hmde-paper
#SBATCH --job-name=hmde
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@300
set -u
recipe=$1
output=$2
resume=false
compgen -G "$output-training/checkpoints/step-*" > /dev/null && resume=true

# One task a GPU and no launcher between: a launcher that gets SIGTERM kills its workers after half a minute, which may
# be too short for a checkpoint. A stopped run ends with 143.
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) MASTER_PORT=29500
srun bash -c "RANK=\$SLURM_PROCID LOCAL_RANK=\$SLURM_LOCALID WORLD_SIZE=\$SLURM_NTASKS exec \
    python training/pretrain.py --config $recipe --output $output --resume $resume" &
step=$!
trap 'scancel --signal=TERM "$SLURM_JOB_ID.0"; wait "$step"; scontrol requeue "$SLURM_JOB_ID"' TERM
wait "$step"
