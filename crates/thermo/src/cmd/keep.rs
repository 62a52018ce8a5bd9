//! `thermo volume verify` and `thermo volume repack`.

use crate::context::Context;
use crate::exit::{Exit, usage};
use crate::progress::begun;
use anyhow::Result;
use client::Connection;
use types::{Barcode, PoolName, RequestView};
use wire::{Call, VolumeChoice};

/// Which volumes.
#[derive(Debug, clap::Args)]
struct Which {
    /// Barcodes
    #[arg(conflicts_with_all = ["pool", "all"])]
    volumes: Vec<String>,
    /// All volumes of this pool that can be read
    #[arg(long, conflicts_with = "all")]
    pool: Option<String>,
    /// All volumes that can be read
    #[arg(long)]
    all: bool,
}

impl Which {
    fn choice(self) -> Result<VolumeChoice> {
        match self.pool {
            Some(pool) => Ok(VolumeChoice::Pool(PoolName(pool))),
            None if self.all => Ok(VolumeChoice::All),
            None if self.volumes.is_empty() => {
                Err(usage("say which volumes: their barcodes, --pool NAME or --all; nothing was begun"))
            }
            None => Ok(VolumeChoice::These(self.volumes.into_iter().map(Barcode::from).collect())),
        }
    }
}

/// Read every copy on volumes and compare it with its digest
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Drives do it when nothing else wants them. A damaged copy counts no more: a new one is made from another \
                  copy.\n\nExample:\n  thermo volume verify TC0001L9 TC0002L9 --wait\n  thermo volume verify --pool primary\n  \
                  thermo volume verify --all"
)]
pub struct VerifyArgs {
    #[command(flatten)]
    which: Which,
    /// Wait until it is done
    #[arg(short, long)]
    wait: bool,
}

/// Copy what is needed of volumes to others of their pools, and make them scratch
#[derive(Debug, clap::Args)]
#[command(
    after_help = "From the beginning on nothing is written to these volumes. Every file keeps its copies throughout. Deleted \
                  and overwritten versions on them are gone afterwards. `request cancel` ends it; what has moved has \
                  moved.\n\nExample:\n  thermo volume repack TC0001L9 --wait\n  thermo volume repack --pool primary --dead \
                  50\n  thermo volume repack --all --generation LTO7"
)]
pub struct RepackArgs {
    #[command(flatten)]
    which: Which,
    /// Only volumes of which at least so many per cent are dead
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    dead: Option<u8>,
    /// Only volumes of this generation of LTO, and older ones
    #[arg(long, value_name = "LTOx", value_parser = generation)]
    generation: Option<u8>,
    /// Wait until it is done
    #[arg(short, long)]
    wait: bool,
}

fn generation(text: &str) -> Result<u8, String> {
    node::config::lto_generation(text).ok_or_else(|| format!("`{text}` is not LTO1 to LTO10"))
}

/// Runs `thermo volume verify`.
pub fn verify(context: &mut Context, node: &mut Connection, args: VerifyArgs) -> Result<Exit> {
    begin(context, node, &Call::Verify(args.which.choice()?), args.wait)
}

/// Runs `thermo volume repack`.
pub fn repack(context: &mut Context, node: &mut Connection, args: RepackArgs) -> Result<Exit> {
    let RepackArgs { which, dead, generation, wait } = args;
    let several = which.all || which.pool.is_some();
    if several && dead.is_none() && generation.is_none() {
        let why = "--pool and --all need --dead or --generation: without them every volume would be copied";
        return Err(usage(why));
    }
    let call = Call::Repack { volumes: which.choice()?, dead_percent: dead, generation };
    begin(context, node, &call, wait)
}

fn begin(context: &mut Context, node: &mut Connection, call: &Call, wait: bool) -> Result<Exit> {
    let view: RequestView = node.ask(call)?;
    begun(context, node, view, wait)
}
